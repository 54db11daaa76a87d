/* structures assigned, cleared and sorted by insertion */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <pthread.h>
struct item { long key; double v[30]; char name[16]; };
enum { N = 400, T = 4 };
static struct item *pool[T];
static void *work(void *p){ long t=(long)p; struct item *a=pool[t];
 for(int r=0;r<3;r++){
 for(int i=0;i<N;i++){ struct item x; memset(&x,0,sizeof x); x.key=(i*7919+t)%N; a[i]=x; }
 for(int i=1;i<N;i++){ struct item k=a[i]; int j=i; while(j>0&&a[j-1].key>k.key) j--; memmove(a+j+1,a+j,(i-j)*sizeof *a); a[j]=k; }
 } return 0; }
int main(void){ pthread_t h[T]; for(long t=0;t<T;t++){ pool[t]=malloc(N*sizeof **pool); memset(pool[t],1,N*sizeof **pool);} 
 for(long t=0;t<T;t++) pthread_create(h+t,0,work,(void*)t);
 for(int t=0;t<T;t++) pthread_join(h[t],0);
 printf("%ld\n",pool[1][3].key); return 0; }
