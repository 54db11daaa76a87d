/* threads append records to shared segments, the first compacts them */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <omp.h>
enum { T=4, S=32768, R=256 };
static unsigned char seg[T][S] __attribute__((aligned(4096))), all[T*S] __attribute__((aligned(4096)));
int main(void){ unsigned long h=0;
 for(int round=0;round<6;round++){
 #pragma omp parallel num_threads(T)
 { int t=omp_get_thread_num(); unsigned char rec[R]; size_t at=0; unsigned n=0;
  while(at+R<=S){ memset(rec,(int)(n+t),R); memcpy(seg[t]+at,rec,R); at+=R-(n++%3)*8; } }
 for(int t=0;t<T;t++) memcpy(all+t*S,seg[t],S);
 for(int i=0;i<T*S;i+=64) h=h*31+all[i];
 memset(seg,0,sizeof seg);
 } printf("%lu\n",h); return 0; }
