! Particles whose positions and velocities the main thread initialises; AFTER: each thread initialises those it moves.
program particles
  implicit none
  integer, parameter :: n = 40000, rounds = 6
  real(8), allocatable :: x(:), y(:), z(:), vx(:), vy(:), vz(:)
  integer :: i, round
  allocate(x(n), y(n), z(n), vx(n), vy(n), vz(n))
#ifdef AFTER
  !$omp parallel do schedule(static)
#endif
  do i = 1, n
    x(i) = i * 0.001d0
    y(i) = i * 0.002d0
    z(i) = i * 0.003d0
    vx(i) = 1.0d0 / i
    vy(i) = 2.0d0 / i
    vz(i) = 3.0d0 / i
  end do
  do round = 1, rounds
    !$omp parallel do schedule(static)
    do i = 1, n
      vx(i) = vx(i) - 0.01d0 * x(i)
      vy(i) = vy(i) - 0.01d0 * y(i)
      vz(i) = vz(i) - 0.01d0 * z(i)
      x(i) = x(i) + 0.1d0 * vx(i)
      y(i) = y(i) + 0.1d0 * vy(i)
      z(i) = z(i) + 0.1d0 * vz(i)
    end do
  end do
  print *, x(n), y(n / 2), z(1)
end program
