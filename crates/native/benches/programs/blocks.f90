! Small dense systems: each cell of a grid solves a 5 x 5 system that its neighbour's solution enters, in parallel.
program blocks
  implicit none
  integer, parameter :: n = 5, cells = 4000, lines = 16, rounds = 300
  real(8), allocatable :: a(:,:,:,:), x(:,:,:)
  real(8) :: m(n,n), v(n), f
  integer :: c, l, t, i, j, k
  allocate(a(n,n,cells,lines), x(n,cells,lines))
  !$omp parallel do private(c, i, j)
  do l = 1, lines
    do c = 1, cells
      do j = 1, n
        do i = 1, n
          a(i,j,c,l) = 1d0 / (i + j + mod(c, 7)) + merge(4d0, 0d0, i == j)
        end do
        x(j,c,l) = 0.1d0 * j
      end do
    end do
  end do
  do t = 1, rounds
    !$omp parallel do private(c, i, j, k, m, v, f)
    do l = 1, lines
      do c = 2, cells
        m = a(:,:,c,l)
        v = x(:,c-1,l) + 0.5d0 * x(:,c,l)
        do k = 1, n
          do i = k + 1, n
            f = m(i,k) / m(k,k)
            do j = k, n
              m(i,j) = m(i,j) - f * m(k,j)
            end do
            v(i) = v(i) - f * v(k)
          end do
        end do
        do i = n, 1, -1
          do j = i + 1, n
            v(i) = v(i) - m(i,j) * v(j)
          end do
          v(i) = v(i) / m(i,i)
        end do
        x(:,c,l) = v
      end do
    end do
  end do
  print '(2es16.8)', sum(x), maxval(x)
end program
