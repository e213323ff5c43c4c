# gfortran with OpenMP.
# needs: gfortran
# run: long
# timeout: 120
cat >work.f90 <<'X'
program work
  use omp_lib
  integer :: i
  integer(8) :: s
  s = 0
  !$omp parallel do reduction(+:s) num_threads(3)
  do i = 1, 100000
    s = s + mod(i * 7_8, 13_8)
  end do
  print '(I12)', s
end program
X
gfortran -O2 -fopenmp work.f90 -o work && ./work
rm -f work
