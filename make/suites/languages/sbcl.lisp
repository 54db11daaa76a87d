;; Compiled code, threads, conditions (one by a fault), collection of garbage that moves objects.
(defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(print (fib 22))
(gc :full t)
(print (handler-case (car 1) (error () :error)))
(flet ((sum (id) (sb-thread:make-thread (lambda () (loop for at below 10000 sum (* id at))))))
  (print (mapcar #'sb-thread:join-thread (loop for id below 4 collect (sum id)))))
(terpri)
