! Ring in FORTRAN 77 style (mpif.h): rank r sends 500 doubles to (r+1) mod n, 30 times.
!
! Point-to-point, r to (r+1) mod n: 30 messages, 30 * 500 * 8 = 120000 bytes. Nothing else.
      program ring
      implicit none
      include 'mpif.h'
      double precision out(500), in(500)
      integer rank, ranks, next, previous, it, ierr, wrong
      integer status(MPI_STATUS_SIZE)
      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, ierr)
      next = mod(rank + 1, ranks)
      previous = mod(rank + ranks - 1, ranks)
      out = rank
      wrong = 0
      do it = 1, 30
         call MPI_SENDRECV(out, 500, MPI_DOUBLE_PRECISION, next, 0,      &
     &                     in, 500, MPI_DOUBLE_PRECISION, previous, 0,   &
     &                     MPI_COMM_WORLD, status, ierr)
         if (in(500) .ne. previous) wrong = 1
      end do
      if (rank .eq. 0) print '(A,I0,A)', 'ring_mpif: ', ranks, ' ranks'
      call MPI_FINALIZE(ierr)
      if (wrong .ne. 0) stop 1
      end program
