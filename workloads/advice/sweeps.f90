! Alternating sweeps along rows and along columns of a grid, each line solved by one thread.
! Arguments: THREADS [SIDE].
program sweeps
  use omp_lib
  implicit none
  integer :: n, threads, i, j, step
  real(8), allocatable :: u(:, :)
  character(len=32) :: word
  call get_command_argument(1, word)
  read (word, *) threads
  n = 256
  if (command_argument_count() > 1) then
    call get_command_argument(2, word)
    read (word, *) n
  end if
  call omp_set_num_threads(threads)
  allocate (u(n, n))
  !$omp parallel do schedule(static) private(i)
  do j = 1, n
    do i = 1, n
      u(i, j) = i + 2 * j
    end do
  end do
  do step = 1, 2
    !$omp parallel do schedule(static) private(i)
    do j = 1, n
      do i = 2, n
        u(i, j) = 0.5d0 * (u(i, j) + u(i - 1, j))
      end do
    end do
    !$omp parallel do schedule(static) private(j)
    do i = 1, n
      do j = 2, n
        u(i, j) = 0.5d0 * (u(i, j) + u(i, j - 1))
      end do
    end do
  end do
  print *, u(n / 2, n / 2)
end program
