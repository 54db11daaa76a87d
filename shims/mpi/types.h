/* Types and constants of the MPI libraries' binary interfaces, as far as the wrappers need them; or those of a real
 * mpi.h, against which `make test` compiles the wrappers. */
#ifndef NUMALOC_TYPES_H
#define NUMALOC_TYPES_H

#ifdef NUMALOC_CHECK_AGAINST_MPI_H
#include <mpi.h>
#if defined NUMALOC_FOR_OPEN_MPI && OMPI_MAJOR_VERSION < 5
typedef struct ompi_instance_t *MPI_Session;
#endif
#elif defined NUMALOC_FOR_OPEN_MPI
typedef struct ompi_communicator_t *MPI_Comm;
typedef struct ompi_datatype_t *MPI_Datatype;
typedef struct ompi_request_t *MPI_Request;
typedef struct ompi_message_t *MPI_Message;
typedef struct ompi_win_t *MPI_Win;
typedef struct ompi_op_t *MPI_Op;
typedef struct ompi_group_t *MPI_Group;
typedef struct ompi_info_t *MPI_Info;
typedef struct ompi_file_t *MPI_File;
typedef struct ompi_instance_t *MPI_Session;
typedef struct ompi_errhandler_t *MPI_Errhandler;
typedef struct ompi_status_public_t {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR, cancelled;
    unsigned long count;
} MPI_Status;
typedef long MPI_Aint;
typedef long long MPI_Count, MPI_Offset;
#define MPI_IN_PLACE ((void *)1)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)
enum { MPI_ANY_SOURCE = -1, MPI_ANY_TAG = -1, MPI_UNDEFINED = -32766 };
enum { MPI_CART = 1, MPI_GRAPH = 2, MPI_DIST_GRAPH = 3 };
#else
typedef int MPI_Comm, MPI_Datatype, MPI_Request, MPI_Message, MPI_Win, MPI_Op, MPI_Group, MPI_Info, MPI_Session;
typedef int MPI_Errhandler;
typedef struct ADIOI_FileD *MPI_File;
typedef struct MPI_Status {
    int count_low, count_high, MPI_SOURCE, MPI_TAG, MPI_ERROR;
} MPI_Status;
typedef long MPI_Aint, MPI_Count;
typedef long long MPI_Offset;
#define MPI_COMM_WORLD ((MPI_Comm)0x44000000)
#define MPI_COMM_NULL ((MPI_Comm)0x04000000)
#define MPI_IN_PLACE ((void *)-1)
#define MPI_STATUS_IGNORE ((MPI_Status *)1)
#define MPI_STATUSES_IGNORE ((MPI_Status *)1)
enum { MPI_ANY_SOURCE = -2, MPI_ANY_TAG = -1, MPI_UNDEFINED = -32766 };
enum { MPI_GRAPH = 1, MPI_CART = 2, MPI_DIST_GRAPH = 3 };
#endif

typedef intptr_t handle; /* of a communicator, window or request */

#endif
