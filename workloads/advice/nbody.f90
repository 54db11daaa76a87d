! Forces between all pairs of bodies: every thread reads all positions and writes the forces of its own bodies.
! Arguments: THREADS [BODIES].
program nbody
  use omp_lib
  implicit none
  integer :: n, threads, i, j, step
  real(8), allocatable :: at(:, :), force(:, :)
  real(8) :: d(3), s
  character(len=32) :: word
  call get_command_argument(1, word)
  read (word, *) threads
  n = 320
  if (command_argument_count() > 1) then
    call get_command_argument(2, word)
    read (word, *) n
  end if
  call omp_set_num_threads(threads)
  allocate (at(3, n), force(3, n))
  do i = 1, n
    at(:, i) = [modulo(i * 7, 31), modulo(i * 11, 29), modulo(i * 3, 23)]
  end do
  do step = 1, 2
    !$omp parallel do schedule(static) private(j, d, s)
    do i = 1, n
      force(:, i) = 0
      do j = 1, n
        d = at(:, j) - at(:, i)
        s = d(1) * d(1) + d(2) * d(2) + d(3) * d(3) + 0.01d0
        force(:, i) = force(:, i) + d / (s * sqrt(s))
      end do
    end do
    !$omp parallel do schedule(static)
    do i = 1, n
      at(:, i) = at(:, i) + 0.001d0 * force(:, i)
    end do
  end do
  print *, at(1, 1)
end program
