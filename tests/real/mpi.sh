# MPI on one host: processes that share memory, and a library that patches libc's functions (UCX).
# needs: mpicc.mpich mpiexec.mpich
# run: long
# timeout: 300
# ignore: log
cat >work.c <<'X'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size, sum = 0, token = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 20; i++) {
        int mine = rank + i;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (rank) MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    token++;
    MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
    if (!rank) {
        MPI_Recv(&token, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("%d processes, sum %d, token %d\n", size, sum, token);
    }
    MPI_Finalize();
    return 0;
}
X
mpicc.mpich work.c -o work
# UCX asks network devices for what clew only knows by comparing memory, and says so.
mpiexec.mpich -n 2 ./work 2>log
rm -f work
