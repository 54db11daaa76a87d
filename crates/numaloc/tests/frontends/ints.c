/* histograms in cleared tables, added up in a copied one */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <omp.h>
enum { T=4, K=16384, N=65536 };
static unsigned long key[N] __attribute__((aligned(4096))), h[T][K] __attribute__((aligned(4096))), sum[K] __attribute__((aligned(4096)));
int main(void){ unsigned x=1; for(int i=0;i<N;i++) key[i]=(x=x*1664525u+1013904223u)%K;
 for(int r=0;r<4;r++){
 #pragma omp parallel num_threads(T)
 { int t=omp_get_thread_num(); memset(h[t],0,sizeof h[t]);
  #pragma omp for
  for(int i=0;i<N;i++) h[t][key[i]]++;
 }
 memcpy(sum,h[0],sizeof sum);
 for(int t=1;t<T;t++) for(int k=0;k<K;k++) sum[k]+=h[t][k];
 }
 printf("%lu\n",sum[9]); return 0; }
