/* Ranks of a host share memory through a file whose name is the same on all hosts: same_name FILE ROUNDS. The first rank
 * of each host writes a page, its second one reads it. Each rank sends 5 messages of 800 bytes to the rank two further. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS = 4096 / sizeof(long) };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int file = open(argv[1], O_RDWR | O_CREAT, 0666);
    if (file < 0 || ftruncate(file, 4096) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
    volatile long *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) MPI_Abort(MPI_COMM_WORLD, 1);
    long sum = 0, sent[100] = {0}, received[100];
    for (int message = 0; message < 5; message++)
        MPI_Sendrecv(sent, 100, MPI_LONG, (rank + 2) % 4, 0, received, 100, MPI_LONG, (rank + 2) % 4, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    for (int round = 0; round < atoi(argv[2]); round++) {
        for (int i = 0; i < WORDS; i++)
            if (rank % 2 == 0) page[i] = 1000 * rank + round;
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < WORDS; i++)
            if (rank % 2 == 1) sum += page[i] == 1000 * (rank - 1) + round;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    /* Of another host's writes, none is seen. */
    if (rank % 2 == 1 && sum != (long)WORDS * atoi(argv[2])) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
