! Transpose with the `mpi_f08` module: MPI_Alltoall of 1000 doubles per pair, 5 times, and one blocking
! send of 64 doubles from every rank to the next.
!
! Collective, every ordered pair of different ranks: 5 * 8000 = 40000 bytes.
! Point-to-point, r to (r+1) mod n: 1 message, 512 bytes.
program transpose_f08
  use mpi_f08
  implicit none
  double precision, allocatable :: out(:, :), in(:, :)
  double precision :: token(64)
  type(MPI_Request) :: request
  integer :: rank, ranks, it, from, wrong
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  allocate(out(1000, ranks), in(1000, ranks))
  out = rank
  wrong = 0
  do it = 1, 5
    call MPI_Alltoall(out, 1000, MPI_DOUBLE_PRECISION, in, 1000, MPI_DOUBLE_PRECISION, MPI_COMM_WORLD)
    do from = 1, ranks
      if (in(1000, from) /= from - 1) wrong = 1
    end do
  end do
  call MPI_Irecv(token, 64, MPI_DOUBLE_PRECISION, mod(rank + ranks - 1, ranks), 7, MPI_COMM_WORLD, request)
  call MPI_Send(out(1:64, 1), 64, MPI_DOUBLE_PRECISION, mod(rank + 1, ranks), 7, MPI_COMM_WORLD)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  if (token(64) /= mod(rank + ranks - 1, ranks)) wrong = 1
  if (rank == 0) print '(A,I0,A)', 'transpose_f08: ', ranks, ' ranks'
  call MPI_Finalize()
  if (wrong /= 0) stop 1
end program
