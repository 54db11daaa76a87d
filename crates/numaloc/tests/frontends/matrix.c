/* tiles copied in, multiplied, copied out */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <omp.h>
enum { N=128, B=32 };
static double a[N][N] __attribute__((aligned(4096))), b[N][N] __attribute__((aligned(4096))), c[N][N] __attribute__((aligned(4096)));
int main(void){ for(int i=0;i<N;i++) for(int j=0;j<N;j++) a[i][j]=i,b[i][j]=j;
 #pragma omp parallel for
 for(int ib=0;ib<N;ib+=B) { double *ta=malloc(B*B*8),*tb=malloc(B*B*8),*tc=malloc(B*B*8);
  for(int jb=0;jb<N;jb+=B){ memset(tc,0,B*B*8);
   for(int kb=0;kb<N;kb+=B){ for(int i=0;i<B;i++){ memcpy(ta+i*B,&a[ib+i][kb],B*8); memcpy(tb+i*B,&b[kb+i][jb],B*8);} 
    for(int i=0;i<B;i++) for(int k=0;k<B;k++) for(int j=0;j<B;j++) tc[i*B+j]+=ta[i*B+k]*tb[k*B+j]; }
   for(int i=0;i<B;i++) memcpy(&c[ib+i][jb],tc+i*B,B*8); }
  free(ta);free(tb);free(tc); }
 printf("%g\n",c[3][5]); return 0; }
