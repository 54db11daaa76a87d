! A seven-point stencil and the transform of its lines: Fortran loops over arrays.
program stencil
  implicit none
  integer, parameter :: n = 96, rounds = 1000
  real(8), allocatable :: a(:,:,:), b(:,:,:)
  complex(8) :: line(n), wave(n)
  integer :: i, j, k, t
  allocate(a(n,n,n), b(n,n,n))
  do k = 1, n
    do j = 1, n
      do i = 1, n
        a(i,j,k) = sin(0.1d0 * i) * cos(0.2d0 * j) + 0.01d0 * k
      end do
    end do
  end do
  b = a
  do t = 1, rounds
    do k = 2, n - 1
      do j = 2, n - 1
        do i = 2, n - 1
          b(i,j,k) = 0.4d0 * a(i,j,k) + 0.1d0 * (a(i-1,j,k) + a(i+1,j,k) + a(i,j-1,k) + a(i,j+1,k) + a(i,j,k-1) + a(i,j,k+1))
        end do
      end do
    end do
    a = b
  end do
  wave = 0
  do j = 1, n, 2
    line = cmplx(a(:,j,n/2), 0d0, 8)
    do k = 1, n
      do i = 1, n
        wave(k) = wave(k) + line(i) * exp(cmplx(0d0, -6.283185307179586d0 * (i - 1) * (k - 1) / n, 8))
      end do
    end do
  end do
  print '(2es16.8)', sum(a), sum(abs(wave))
end program
