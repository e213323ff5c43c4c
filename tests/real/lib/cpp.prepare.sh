cat >cpp.cpp <<'X'
#include <atomic>
#include <cstdio>
#include <future>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>
static std::atomic<long> destroyed;
static std::mutex lock;
static std::map<int, int> caught;
struct Counts { ~Counts() { destroyed++; } };
static int deep(int depth) { Counts counts; if (depth == 0) throw std::runtime_error("deep"); return deep(depth - 1) + 1; }
int main(int argc, char **) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) threads.emplace_back([] { for (int k = 0; k < 300; k++) try { deep(k % 20); } catch (std::exception &) { std::lock_guard guard(lock); caught[k % 7]++; } });
    for (auto &thread : threads) thread.join();
    std::printf("%ld %d\n", destroyed.load(), caught[3]);
    std::vector<std::future<int>> futures; int sum = 0, errors = 0;
    for (int i = 0; i < 20; i++) futures.push_back(std::async(std::launch::async, [i] { if (i % 5 == 0) throw std::logic_error("x"); return i * i; }));
    for (auto &future : futures) try { sum += future.get(); } catch (std::logic_error &) { errors++; }
    std::printf("%d %d\n", sum, errors);
    if (argc > 1) { std::vector<char> big(1u << 30); long hash = 0; for (size_t i = 0; i < big.size(); i += 4096) big[i] = i >> 12; for (size_t i = 0; i < big.size(); i += 4096) hash = hash * 31 + big[i]; std::printf("%lx\n", hash); }
}
X
g++ -O2 -pthread cpp.cpp -o cpp
