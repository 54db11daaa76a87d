// A server of a few keys: GET /KEY counts its requests; GET /quit ends it.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"
)

func main() {
	var lock sync.Mutex
	counts := map[string]int{}
	server := &http.Server{Addr: "127.0.0.1:" + os.Args[1]}
	done := make(chan bool)
	http.HandleFunc("/", func(out http.ResponseWriter, in *http.Request) {
		lock.Lock()
		counts[in.URL.Path]++
		lock.Unlock()
		fmt.Fprintf(out, "served")
		if in.URL.Path == "/quit" {
			go func() {
				limit, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				server.Shutdown(limit)
				close(done)
			}()
		}
	})
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		panic(err)
	}
	<-done
}
