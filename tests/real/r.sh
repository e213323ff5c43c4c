# R: an interpreter with a byte-code compiler, Fortran underneath.
# needs: Rscript
# run: long
# timeout: 240
cat >work.R <<'X'
x <- sapply(1:2000, function(i) i^2)
cat(sum(x), "\n")
m <- matrix(c(2, 1, 1, 3), 2)
print(solve(m))
print(tryCatch(stop("planned"), error = function(e) conditionMessage(e)))
set.seed(1); print(round(mean(rnorm(1000)), 6))
X
Rscript --vanilla work.R
