#pragma once
// What the files of the test of the C interface share; check.h comes before.

extern mpigrad_comm world;
extern int rank, ranks;
static const int64_t six[1] = {6}, two_three[2] = {2, 3}, four_four[2] = {4, 4};

void test_communication(void);
void test_halos(void);
void test_ops(void);
void test_loops(void);
void test_training(const char* folder);
void test_files(const char* folder, const char* source);
