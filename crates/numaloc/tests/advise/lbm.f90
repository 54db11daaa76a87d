! Lattice Boltzmann (D2Q9), two lattices in turn, that the main thread initialises; AFTER: each thread its columns.
program lbm
  implicit none
  integer, parameter :: n = 96, steps = 3
  integer, parameter :: ex(0:8) = [0, 1, 0, -1, 0, 1, -1, -1, 1], ey(0:8) = [0, 0, 1, 0, -1, 1, 1, -1, -1]
  real(8), parameter :: weight(0:8) = [4d0/9, 1d0/9, 1d0/9, 1d0/9, 1d0/9, 1d0/36, 1d0/36, 1d0/36, 1d0/36]
  real(8), allocatable :: f(:, :, :), g(:, :, :)
  integer :: i, j, step
  allocate(f(0:8, n, n), g(0:8, n, n))
#ifdef AFTER
  !$omp parallel do private(i) schedule(static)
#endif
  do j = 1, n
    do i = 1, n
      f(:, i, j) = weight * (1 + 0.01d0 * mod(i, 5))
      g(:, i, j) = 0
    end do
  end do
  do step = 1, steps
    call collide_and_stream(f, g)
    call collide_and_stream(g, f)
  end do
  print *, f(1, n / 2, n / 2)
contains
  subroutine collide_and_stream(from, to)
    real(8), intent(in) :: from(0:8, n, n)
    real(8), intent(out) :: to(0:8, n, n)
    real(8) :: density, ux, uy, eu, equilibrium
    integer :: i, j, q
    !$omp parallel do private(i, q, density, ux, uy, eu, equilibrium) schedule(static)
    do j = 1, n
      do i = 1, n
        density = sum(from(:, i, j))
        ux = sum(ex * from(:, i, j)) / density
        uy = sum(ey * from(:, i, j)) / density
        do q = 0, 8
          eu = ex(q) * ux + ey(q) * uy
          equilibrium = weight(q) * density * (1 + 3 * eu + 4.5d0 * eu * eu - 1.5d0 * (ux * ux + uy * uy))
          to(q, 1 + modulo(i - 1 + ex(q), n), 1 + modulo(j - 1 + ey(q), n)) = 0.4d0 * from(q, i, j) + 0.6d0 * equilibrium
        end do
      end do
    end do
  end subroutine
end program
