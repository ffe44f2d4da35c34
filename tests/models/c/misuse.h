#pragma once
// What the files of the test of misuse share; check.h comes before.

extern double memory[4];
extern mpigrad_tensor x, y, out[4];
extern mpigrad_comm self;
static const int64_t two[1] = {2}, two_two[2] = {2, 2};

void test_threads(void);
