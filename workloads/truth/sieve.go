// Command sieve marks the multiples of primes in segments, which goroutines take from a channel; the first goroutine
// made the small primes that all of them read.
package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

const limit, segment = 1 << 23, 1 << 18

func main() {
	runtime.GOMAXPROCS(8)
	small := []int{}
	for n := 2; n*n <= limit; n++ {
		prime := true
		for _, p := range small {
			if p*p > n {
				break
			}
			if n%p == 0 {
				prime = false
				break
			}
		}
		if prime {
			small = append(small, n)
		}
	}
	composite := make([]byte, limit)
	work := make(chan int)
	var total atomic.Int64
	var done sync.WaitGroup
	for worker := 0; worker < 8; worker++ {
		done.Add(1)
		go func() {
			defer done.Done()
			for low := range work {
				part := composite[low : low+segment]
				for _, p := range small {
					first := max(p*p, (low+p-1)/p*p)
					for n := first; n < low+segment; n += p {
						part[n-low] = 1
					}
				}
				count := 0
				for at, marked := range part {
					if marked == 0 && low+at > 1 {
						count++
					}
				}
				total.Add(int64(count))
			}
		}()
	}
	for low := 0; low < limit; low += segment {
		work <- low
	}
	close(work)
	done.Wait()
	fmt.Println(total.Load())
}
