/* byte buffers of odd sizes and alignments; messages through a ring */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <omp.h>
enum { T = 4, M = 5003, R = 60 };
static char box[T][8192] __attribute__((aligned(4096)));
int main(void){ long s=0;
 #pragma omp parallel num_threads(T) reduction(+:s)
 { int t=omp_get_thread_num(); char *mine=malloc(9000);
   for(int r=0;r<R;r++){
    memset(mine, r, M);
    memcpy(box[t]+r%7, mine, M-r);
    #pragma omp barrier
    memcpy(mine+3, box[(t+1)%T]+r%5, M-17);
    s+=mine[r];
    #pragma omp barrier
   } free(mine); }
 printf("%ld\n",s); return 0; }
