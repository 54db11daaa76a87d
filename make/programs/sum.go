// Four goroutines sum squares of a shared slice over a channel.
package main

import (
	"fmt"
	"os"
	"strconv"
)

func main() {
	size, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	cells := make([]int64, size)
	for i := range cells {
		cells[i] = int64(i) * int64(i) % 1000003
	}
	sums := make(chan int64)
	for w := 0; w < 4; w++ {
		go func(w int) {
			var sum int64
			for i := w; i < len(cells); i += 4 {
				sum += cells[i]
			}
			sums <- sum
		}(w)
	}
	var sum int64
	for w := 0; w < 4; w++ {
		sum += <-sums
	}
	fmt.Println(sum)
}
