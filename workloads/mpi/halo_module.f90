! One-dimensional halo with the `mpi` module: rank r exchanges 200 doubles with r-1 and r+1 (no wrap),
! 25 times, non-blocking; then one MPI_Allreduce of one double.
!
! Point-to-point between neighbours, each direction: 25 messages, 25 * 200 * 8 = 40000 bytes.
! Collective: 8 bytes per message of the Allreduce.
program halo
  use mpi
  implicit none
  double precision :: out(200), in(200, 2), residual, total
  integer :: rank, ranks, side, peer, it, used, ierr, wrong
  integer :: requests(4)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  out = rank
  wrong = 0
  do it = 1, 25
    used = 0
    do side = 1, 2
      peer = rank + 2 * side - 3
      if (peer < 0 .or. peer >= ranks) cycle
      call MPI_Irecv(in(:, side), 200, MPI_DOUBLE_PRECISION, peer, 3 - side, MPI_COMM_WORLD, requests(used + 1), ierr)
      call MPI_Isend(out, 200, MPI_DOUBLE_PRECISION, peer, side, MPI_COMM_WORLD, requests(used + 2), ierr)
      used = used + 2
    end do
    call MPI_Waitall(used, requests, MPI_STATUSES_IGNORE, ierr)
    do side = 1, 2
      peer = rank + 2 * side - 3
      if (peer < 0 .or. peer >= ranks) cycle
      if (in(200, side) /= peer) wrong = 1
    end do
  end do
  residual = 1
  call MPI_Allreduce(residual, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (total /= ranks) wrong = 1
  if (rank == 0) print '(A,I0,A)', 'halo_module: ', ranks, ' ranks'
  call MPI_Finalize(ierr)
  if (wrong /= 0) stop 1
end program
