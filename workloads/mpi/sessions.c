/* MPI through a session, without MPI_Init (MPI 4): rank r sends 100 ints to (r+1) mod n, 20 times.
 *
 * Point-to-point, r to (r+1) mod n: 20 messages, 20 * 400 = 8000 bytes. A library without sessions is reported, with status 0.
 */
#include <mpi.h>
#include <stdio.h>

int main(void)
{
#if MPI_VERSION >= 4
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    int rank, ranks, out[100] = {0}, in[100];
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "ring", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    out[99] = rank;
    int wrong = 0, previous = (rank + ranks - 1) % ranks;
    for (int k = 0; k < 20; k++) {
        MPI_Sendrecv(out, 100, MPI_INT, (rank + 1) % ranks, 0, in, 100, MPI_INT, previous, 0, comm, MPI_STATUS_IGNORE);
        wrong |= in[99] != previous;
    }
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
    return wrong;
#else
    puts("sessions: this library has none");
    return 0;
#endif
}
