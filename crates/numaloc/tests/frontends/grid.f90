! Columns of a grid, copied into work arrays and back; the first thread clears and copies all of it.
program grid
  implicit none
  integer, parameter :: n = 256
  real(8), allocatable :: a(:, :), b(:, :)
  real(8) :: w(n)
  integer :: round, j
  allocate (a(n, n), b(n, n))
  a = 1d0
  b = 2d0
  do round = 1, 6
    !$omp parallel do private(w)
    do j = 2, n - 1
      w = a(:, j - 1)
      b(:, j) = w + a(:, j + 1)
    end do
    a = b
    b = 0d0
  end do
  print *, a(5, 5)
end program
