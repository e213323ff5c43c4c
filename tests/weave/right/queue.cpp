// C++: threads, a queue with a condition, strings and maps across threads, a static variable, exceptions.
// variants: pie
// flags: -pthread
#include <condition_variable>
#include <deque>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::mutex mutex;
static std::condition_variable filled;
static std::deque<std::string> queue;
static std::map<std::string, int> counts;
static bool over;

struct Table {
    std::vector<int> values;
    Table() {
        for (int i = 0; i < 100; i++) values.push_back(i);
    }
};
static Table &table() {
    static Table one;
    return one;
}

static void work(int id) {
    for (;;) {
        std::unique_lock<std::mutex> lock(mutex);
        filled.wait(lock, [] { return over || !queue.empty(); });
        if (queue.empty()) return;
        std::string item = std::move(queue.front());
        queue.pop_front();
        counts[item + std::to_string(id)]++;
        lock.unlock();
        std::stringstream text;
        text << item << table().values[3];
        if (text.str().size() < 3) throw std::logic_error("short");
    }
}

int main() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) threads.emplace_back(work, i);
    for (int i = 0; i < 3000; i++) {
        std::lock_guard<std::mutex> lock(mutex);
        queue.push_back("item number " + std::to_string(i % 17));
        filled.notify_one();
    }
    {
        std::lock_guard<std::mutex> lock(mutex);
        over = true;
        filled.notify_all();
    }
    for (auto &thread : threads) thread.join();
    for (auto &one : counts) std::cout << one.first << " " << one.second << "\n";
    try {
        throw std::runtime_error("the end");
    } catch (std::exception &error) {
        std::cerr << error.what() << std::endl;
    }
}
