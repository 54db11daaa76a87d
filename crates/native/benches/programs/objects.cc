// Virtual calls, recursion, maps and sorting: C++ whose time goes into calls.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <unordered_map>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual double area(double scale) const = 0;
};
struct Square : Shape {
    double side;
    explicit Square(double s) : side(s) {}
    double area(double scale) const override { return side * side * scale; }
};
struct Ring : Shape {
    double outer, inner;
    Ring(double o, double i) : outer(o), inner(i) {}
    double area(double scale) const override { return 3.14159 * (outer * outer - inner * inner) * scale; }
};

__attribute__((noinline)) static uint64_t fibonacci(uint64_t n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

int main()
{
    std::vector<std::unique_ptr<Shape>> shapes;
    uint64_t seed = 1;
    auto draw = [&seed] { return seed = seed * 6364136223846793005u + 1442695040888963407u, seed >> 33; };
    for (int n = 0; n < 4096; n++) {
        if (draw() % 2) shapes.push_back(std::make_unique<Square>(double(n % 7)));
        else shapes.push_back(std::make_unique<Ring>(double(n % 9 + 1), 1.0));
    }
    double sum = 0;
    for (int round = 0; round < 24000; round++)
        for (const auto &shape : shapes) sum += shape->area(1.0 / (round + 1));
    std::unordered_map<uint64_t, uint32_t> counts;
    for (int n = 0; n < 9000000; n++) counts[draw() % 50000]++;
    std::vector<uint64_t> numbers(6000000);
    for (auto &number : numbers) number = draw();
    std::sort(numbers.begin(), numbers.end(), [](uint64_t a, uint64_t b) { return (a ^ 0x55) < (b ^ 0x55); });
    std::printf("%.6g %zu %lu %lu\n", sum, counts.size(), numbers[1000], fibonacci(38));
}
