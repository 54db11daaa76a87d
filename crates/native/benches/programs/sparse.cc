// Conjugate gradient on a sparse matrix with random columns: indexed loads.
#include <cstdio>
#include <vector>

int main()
{
    const int n = 60000, row = 11;
    std::vector<int> column(n * row);
    std::vector<double> value(n * row), x(n, 0.0), r(n, 1.0), p(n, 1.0), q(n);
    unsigned long seed = 7;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < row; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            column[i * row + k] = k ? int((seed >> 33) % n) : i;
            value[i * row + k] = k ? -0.05 : 4.0;
        }
    double rho = n;
    for (int step = 0; step < 600; step++) {
        double pq = 0, next = 0;
        for (int i = 0; i < n; i++) {
            double sum = 0;
            for (int k = 0; k < row; k++) sum += value[i * row + k] * p[column[i * row + k]];
            q[i] = sum;
            pq += p[i] * sum;
        }
        double alpha = rho / (pq + 1e-300);
        for (int i = 0; i < n; i++) {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
            next += r[i] * r[i];
        }
        double beta = next / (rho + 1e-300);
        rho = next;
        for (int i = 0; i < n; i++) p[i] = r[i] + beta * p[i];
    }
    std::printf("%.8g\n", x[n / 2]);
}
