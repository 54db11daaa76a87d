! Products of a dense matrix and a vector; the main thread fills both, threads take rows in blocks.
! Arguments: THREADS [SIDE].
program matvec
  use omp_lib
  implicit none
  integer :: n, threads, i, j, step
  real(8), allocatable :: a(:, :), x(:), y(:)
  real(8) :: total
  character(len=32) :: word
  call get_command_argument(1, word)
  read (word, *) threads
  n = 320
  if (command_argument_count() > 1) then
    call get_command_argument(2, word)
    read (word, *) n
  end if
  call omp_set_num_threads(threads)
  allocate (a(n, n), x(n), y(n))
  do j = 1, n
    do i = 1, n
      a(i, j) = 1d0 / (i + j)
    end do
  end do
  x = 1
  do step = 1, 3
    !$omp parallel do schedule(static) private(i, total)
    do j = 1, n
      total = 0
      do i = 1, n
        total = total + a(i, j) * x(i)
      end do
      y(j) = total
    end do
    x = y / y(1)
  end do
  print *, x(n)
end program
