#include "moments.h"

#include <math.h>

double mean(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return count ? sum / count : 0;
}

double deviation(const double *values, size_t count)
{
    double centre = mean(values, count), sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += pow(values[i] - centre, 2);
    return count ? sqrt(sum / count) : 0;
}
