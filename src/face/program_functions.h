// What the host calls from within itself without being taken for the host: functions of the
// program, see program_functions.cc, and our own end.
#ifndef OVERDRIVE_SRC_FACE_PROGRAM_FUNCTIONS_H_
#define OVERDRIVE_SRC_FACE_PROGRAM_FUNCTIONS_H_

namespace od::face {

// Has the host call `function` in its MPI_Finalize, at the latest moment at which the program may
// still communicate: MPI lets it hang attributes on MPI_COMM_SELF, whose delete functions are
// called at the beginning of MPI_Finalize, the newest first, and in which everything works as
// before. Ours is the oldest if this is called in MPI_Init. False: the host refuses.
bool call_at_end(void (*function)());

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_PROGRAM_FUNCTIONS_H_
