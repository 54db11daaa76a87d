! Two levels of a multigrid cycle in one dimension: smoothing, restriction, smoothing, interpolation.
! Arguments: THREADS [POINTS].
program mg
  use omp_lib
  implicit none
  integer :: n, threads, i, step
  real(8), allocatable :: fine(:), next(:), coarse(:)
  character(len=32) :: word
  call get_command_argument(1, word)
  read (word, *) threads
  n = 60000
  if (command_argument_count() > 1) then
    call get_command_argument(2, word)
    read (word, *) n
  end if
  call omp_set_num_threads(threads)
  allocate (fine(n), next(n), coarse(n / 2))
  !$omp parallel do schedule(static)
  do i = 1, n
    fine(i) = modulo(i, 17)
    next(i) = 0
  end do
  do step = 1, 2
    !$omp parallel do schedule(static)
    do i = 2, n - 1
      next(i) = 0.25d0 * (fine(i - 1) + 2 * fine(i) + fine(i + 1))
    end do
    !$omp parallel do schedule(static)
    do i = 1, n / 2
      coarse(i) = 0.5d0 * (next(2 * i - 1) + next(2 * i))
    end do
    !$omp parallel do schedule(static)
    do i = 1, n / 2
      fine(2 * i - 1) = next(2 * i - 1) + 0.1d0 * coarse(i)
      fine(2 * i) = next(2 * i) + 0.1d0 * coarse(i)
    end do
  end do
  print *, fine(n / 2)
end program
