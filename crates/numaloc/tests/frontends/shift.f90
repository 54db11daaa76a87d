program shift
  implicit none
  integer, parameter :: n=200000
  real(8), allocatable :: x(:), y(:)
  integer :: r, k, t
  allocate(x(n), y(n))
  x=2d0
  y=1d0
  do r=1,6
    !$omp parallel do private(k)
    do t=0,3
      k=t*(n/4)
      y(k+1:k+n/4)=x(k+1:k+n/4)
      x(k+1:k+n/4)=0.5d0*y(k+1:k+n/4)
    end do
  end do
  print *, x(77)
end program
