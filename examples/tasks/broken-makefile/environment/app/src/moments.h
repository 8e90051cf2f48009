#ifndef MOMENTS_H
#define MOMENTS_H

#include <stddef.h>

#define DIGITS 2 /* after the decimal point, in what is printed */

double mean(const double *values, size_t count);
double deviation(const double *values, size_t count);

#endif
