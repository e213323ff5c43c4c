// A number that isn't one is thrown about, and nobody catches it.
// kind: exception
// stdin: 12 x7 9\n
#include <iostream>
#include <stdexcept>
#include <string>
static int parse(const std::string &word) {
    for (char c : word)
        if (c < '0' || c > '9') throw std::invalid_argument("not a number: " + word); // CAUSE
    return std::stoi(word);
}
int main() {
    std::string word;
    int sum = 0;
    while (std::cin >> word) sum += parse(word);
    std::cout << sum << "\n";
}
