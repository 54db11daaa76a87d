! Communicators made and freed with the `mpi_f08` module, ten times: every second one has the ranks in reverse order, and
! the library gives a new one the handle of one that was freed. In each a message of 10 integers to the next rank.
! Then a persistent send of 5 integers to the next rank of the world, started three times by MPI_Startall, and one
! MPI_Barrier of the world.
!
! Point-to-point, r to (r+1) mod n: 5 messages, 200 bytes; r to (r-1) mod n: 5 messages, 200 bytes.
! Persistent, r to (r+1) mod n: 3 messages, 60 bytes.
program split_f08
  use mpi_f08
  implicit none
  type(MPI_Comm) :: comm
  type(MPI_Status) :: status
  type(MPI_Request) :: both(2)
  integer :: rank, ranks, mine, step, key, out(10), in(10)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  out = rank
  do step = 1, 10
    key = merge(-rank, rank, mod(step, 2) == 0)
    call MPI_Comm_split(MPI_COMM_WORLD, 0, key, comm)
    call MPI_Comm_rank(comm, mine)
    call MPI_Sendrecv(out, 10, MPI_INTEGER, mod(mine + 1, ranks), 0, in, 10, MPI_INTEGER, &
                      mod(mine + ranks - 1, ranks), 0, comm, status)
    call MPI_Comm_free(comm)
  end do
  call MPI_Send_init(out, 5, MPI_INTEGER, mod(rank + 1, ranks), 0, MPI_COMM_WORLD, both(1))
  call MPI_Recv_init(in, 5, MPI_INTEGER, mod(rank + ranks - 1, ranks), 0, MPI_COMM_WORLD, both(2))
  do step = 1, 3
    call MPI_Startall(2, both)
    call MPI_Waitall(2, both, MPI_STATUSES_IGNORE)
  end do
  call MPI_Request_free(both(1))
  call MPI_Request_free(both(2))
  call MPI_Barrier(MPI_COMM_WORLD)
  call MPI_Finalize()
end program split_f08
