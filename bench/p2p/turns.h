// Turns among several MPI jobs that run at the same time: exactly one of them measures, the others
// sleep in the kernel.
//
// So the samples of compared variants (with and without Overdrive, with one of its settings, over
// different MPIs) lie milliseconds apart, although each variant is a job of its own, and a change
// of the machine's distance regime hits all of them alike. The jobs map one file of zeros. They
// take turns in visits: in each visit every job has one turn, in an order that is drawn anew,
// because what the predecessor leaves in the caches counts. All jobs must take the same number of
// turns.
#ifndef OVERDRIVE_BENCH_P2P_TURNS_H_
#define OVERDRIVE_BENCH_P2P_TURNS_H_

// Maps the file for job `mine` of `jobs`; 0 on success. Without this call the functions below do
// nothing, so a job that measures alone needs no care.
int od_turns_attach(const char* path, int mine, int jobs);

// All ranks of the job call these; `leader` is set on exactly one of them, and between the calls of
// a rank and the leader's next one lies a barrier of the caller.
// The first turn. The jobs wait for each other here.
void od_turns_begin(int leader);
// Ends the present turn and waits for the job's next one.
void od_turns_next(int leader);
// Ends the last turn and waits until all jobs have done so: what a job does when it ends must not
// disturb the others.
void od_turns_end(int leader);

// Whether to go on with another round, decided by the job that asks first and the same for all.
// Called by the leader only, during its turn; `until_ns` is on the clock of od_probe_now_ns.
int od_turns_go_on(int round, double until_ns);

#endif  // OVERDRIVE_BENCH_P2P_TURNS_H_
