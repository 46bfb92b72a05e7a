// Predefined handles of the ABIs in which they are constants: MPICH's and the standard one.
#ifndef OVERDRIVE_SRC_FACE_ABI_CONSTANTS_H_
#define OVERDRIVE_SRC_FACE_ABI_CONSTANTS_H_

namespace od::face::abi {

// Nothing has to be looked up in the host.
inline bool resolve_predefined(void* (*)(const char*)) { return true; }

inline MPI_Comm comm_world() { return MPI_COMM_WORLD; }
inline MPI_Comm comm_self() { return MPI_COMM_SELF; }
inline MPI_Comm comm_null() { return MPI_COMM_NULL; }
inline MPI_Request request_null() { return MPI_REQUEST_NULL; }
inline MPI_Message message_null() { return MPI_MESSAGE_NULL; }
inline MPI_Message message_no_proc() { return MPI_MESSAGE_NO_PROC; }
inline MPI_Datatype type_null() { return MPI_DATATYPE_NULL; }
inline MPI_Datatype byte() { return MPI_BYTE; }
inline MPI_Datatype packed() { return MPI_PACKED; }
inline MPI_Datatype uint64() { return MPI_UINT64_T; }
inline MPI_Op op_max() { return MPI_MAX; }
inline MPI_Op op_null() { return MPI_OP_NULL; }
inline MPI_Errhandler errors_return() { return MPI_ERRORS_RETURN; }

}  // namespace od::face::abi

#endif  // OVERDRIVE_SRC_FACE_ABI_CONSTANTS_H_
