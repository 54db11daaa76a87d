/* one thread clears the array each round by memset, all sum their part */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <omp.h>
enum { N = 1 << 16 };
int main(void){ double *a = aligned_alloc(4096, N*8); double s=0;
 for(int r=0;r<8;r++){ memset(a,0,N*8);
  #pragma omp parallel for reduction(+:s)
  for(int i=0;i<N;i++) s+=a[i]+1; }
 printf("%g\n",s); return 0; }
