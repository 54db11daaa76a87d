! Tridiagonal systems, one for each column of a matrix: each thread solves a block of columns, three times. The first
! half of the columns is initialised by the threads that solve them, the second half by the first thread.
program columns
  implicit none
  integer, parameter :: rows = 2048, count = 512, rounds = 3
  real(8), allocatable :: right(:, :), upper(:, :)
  real(8) :: total
  integer :: column, row, round
  allocate(right(rows, count), upper(rows, count))
  !$omp parallel do schedule(static)
  do column = 1, count / 2
    right(:, column) = 1.0d0
    upper(:, column) = 0.0d0
  end do
  do column = count / 2 + 1, count
    right(:, column) = 2.0d0
    upper(:, column) = 0.0d0
  end do
  do round = 1, rounds
    !$omp parallel do schedule(static) private(row)
    do column = 1, count
      upper(1, column) = -0.25d0
      right(1, column) = right(1, column) / 4.0d0
      do row = 2, rows
        upper(row, column) = -1.0d0 / (4.0d0 + upper(row - 1, column))
        right(row, column) = (right(row, column) + right(row - 1, column)) / (4.0d0 + upper(row - 1, column))
      end do
      do row = rows - 1, 1, -1
        right(row, column) = right(row, column) - upper(row, column) * right(row + 1, column)
      end do
    end do
  end do
  total = sum(right)
  print '(f14.6)', total
end program columns
