# C++: exceptions thrown in many threads at once, futures; built beforehand.
# needs: g++
./cpp
