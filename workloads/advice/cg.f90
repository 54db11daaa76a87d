! Conjugate gradients with a banded matrix of irregular columns; vectors are initialised in parallel, the matrix by
! the main thread. Arguments: THREADS [ROWS].
program cg
  use omp_lib
  implicit none
  integer :: n, threads, i, k, step
  integer, allocatable :: col(:, :)
  real(8), allocatable :: a(:, :), x(:), r(:), p(:), q(:)
  real(8) :: rho, old, alpha, pq
  character(len=32) :: word
  call get_command_argument(1, word)
  read (word, *) threads
  n = 10000
  if (command_argument_count() > 1) then
    call get_command_argument(2, word)
    read (word, *) n
  end if
  call omp_set_num_threads(threads)
  allocate (col(7, n), a(7, n), x(n), r(n), p(n), q(n))
  do i = 1, n
    do k = 1, 7
      col(k, i) = 1 + modulo(i * k * 13 + k * 101, n)
      a(k, i) = 0.1d0 / k
    end do
    col(1, i) = i
    a(1, i) = 4
  end do
  !$omp parallel do schedule(static)
  do i = 1, n
    x(i) = 0
    r(i) = 1
    p(i) = 1
  end do
  rho = n
  do step = 1, 3
    pq = 0
    !$omp parallel do schedule(static) reduction(+:pq) private(k)
    do i = 1, n
      q(i) = 0
      do k = 1, 7
        q(i) = q(i) + a(k, i) * p(col(k, i))
      end do
      pq = pq + p(i) * q(i)
    end do
    alpha = rho / pq
    old = rho
    rho = 0
    !$omp parallel do schedule(static) reduction(+:rho)
    do i = 1, n
      x(i) = x(i) + alpha * p(i)
      r(i) = r(i) - alpha * q(i)
      rho = rho + r(i) * r(i)
    end do
    !$omp parallel do schedule(static)
    do i = 1, n
      p(i) = r(i) + rho / old * p(i)
    end do
  end do
  print *, rho
end program
