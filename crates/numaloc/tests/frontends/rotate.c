/* each thread copies its neighbour's block, then updates its own */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <omp.h>
enum { B = 8192, T = 4 };
static double x[T][B] __attribute__((aligned(4096))), y[T][B] __attribute__((aligned(4096)));
int main(void){ double s=0;
 #pragma omp parallel num_threads(T) reduction(+:s)
 { int t=omp_get_thread_num();
   for(int i=0;i<B;i++) x[t][i]=t+i;
   for(int r=0;r<10;r++){
   #pragma omp barrier
   memcpy(y[t], x[(t+1)%T], sizeof y[t]);
   #pragma omp barrier
   for(int i=0;i<B;i++) x[t][i]=x[t][i]*0.5+y[t][i];
   memmove(y[t]+1,y[t],sizeof y[t]-8);
   }
   s+=x[t][5]; }
 printf("%g\n",s); return 0; }
