! Red-black Gauss-Seidel on a plane that the main thread initialises; AFTER: each thread initialises its columns.
program redblack
  implicit none
  integer, parameter :: n = 512, rounds = 3
  real(8), allocatable :: u(:, :), f(:, :)
  integer :: i, j, colour, round
  allocate(u(0:n + 1, 0:n + 1), f(0:n + 1, 0:n + 1))
#ifdef AFTER
  !$omp parallel do private(i) schedule(static)
#endif
  do j = 0, n + 1
    do i = 0, n + 1
      u(i, j) = mod(i * 7 + j, 13)
      f(i, j) = 0.001d0 * i
    end do
  end do
  do round = 1, rounds
    do colour = 0, 1
      !$omp parallel do private(i) schedule(static)
      do j = 1, n
        do i = 1 + mod(j + colour, 2), n, 2
          u(i, j) = 0.25d0 * (u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1) - f(i, j))
        end do
      end do
    end do
  end do
  print *, u(n / 2, n / 2)
end program
