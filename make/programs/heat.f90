! Heat on a square by OpenMP threads, in whole numbers: the printed sum does not depend on who did what.
program heat
   implicit none
   integer, parameter :: n = 700, steps = 400
   integer(8), allocatable :: now(:, :), next(:, :)
   integer :: i, j, step
   allocate (now(0:n + 1, 0:n + 1), next(0:n + 1, 0:n + 1))
   now = 0
   now(0, :) = 1000000
   next = now
   do step = 1, steps
      !$omp parallel do private(i)
      do j = 1, n
         do i = 1, n
            next(i, j) = (now(i - 1, j) + now(i + 1, j) + now(i, j - 1) + now(i, j + 1)) / 4
         end do
      end do
      !$omp parallel do
      do j = 1, n
         now(1:n, j) = next(1:n, j)
      end do
   end do
   print *, sum(now)
end program
