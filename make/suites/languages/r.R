# Linear algebra by the libraries, forked workers, conditions.
set.seed(1)
matrix_a <- matrix(rnorm(40000), 200)
print(signif(sum(solve(crossprod(matrix_a)) %*% crossprod(matrix_a)), 4))
print(summary(lm(mpg ~ wt, mtcars))$r.squared)
print(unlist(parallel::mclapply(1:4, function(id) sum(1:1000) * id, mc.cores = 2)))
print(tryCatch(stop("stopped"), error = function(error) conditionMessage(error)))
