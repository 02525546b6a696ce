// One communicator per rank, and calls for all ranks in one group. The few functions and numbers of NCCL 2 that are
// used are declared here: they are the same in all its versions, and toolkits come without its header. If there is a
// header, the compiler compares the declarations.
#include "kernels/cuda/card/nccl_calls.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "kernels/cuda/card/runtime.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <type_traits>
#endif

namespace slipstream::cuda::card {

namespace {

constexpr char kFile[] = "libnccl.so.2";

// Values of NCCL's enumerations, which are passed as integers: of results (kDone, kUnderWay), types (kFloat32) and
// operations (kSum).
constexpr int kDone = 0;
constexpr int kUnderWay = 7;
constexpr int kFloat32 = 7;
constexpr int kSum = 0;

using Communicator = void*;
using GetVersion = int(int*);
using ErrorString = const char*(int);
using InitAll = int(Communicator*, int n, const int* devices);
using OfOne = int(Communicator);
using AsyncError = int(Communicator, int* result);
using AllReduce = int(const void* from, void* to, std::size_t n, int type, int operation, Communicator, cudaStream_t);
using AllGather = int(const void* from, void* to, std::size_t n, int type, Communicator, cudaStream_t);
using Group = int();

#if __has_include(<nccl.h>)
static_assert(ncclSuccess == kDone && ncclInProgress == kUnderWay && ncclFloat32 == kFloat32 && ncclSum == kSum);
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int) &&
              sizeof(ncclRedOp_t) == sizeof(int) && std::is_pointer_v<ncclComm_t>);
static_assert(std::is_same_v<decltype(ncclGetVersion), ncclResult_t(int*)>);
static_assert(std::is_same_v<decltype(ncclGetErrorString), const char*(ncclResult_t)>);
static_assert(std::is_same_v<decltype(ncclCommInitAll), ncclResult_t(ncclComm_t*, int, const int*)>);
static_assert(std::is_same_v<decltype(ncclCommDestroy), ncclResult_t(ncclComm_t)>);
static_assert(std::is_same_v<decltype(ncclCommAbort), ncclResult_t(ncclComm_t)>);
static_assert(std::is_same_v<decltype(ncclCommGetAsyncError), ncclResult_t(ncclComm_t, ncclResult_t*)>);
static_assert(std::is_same_v<decltype(ncclAllReduce), ncclResult_t(const void*, void*, std::size_t, ncclDataType_t,
                                                                   ncclRedOp_t, ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(ncclAllGather),
                             ncclResult_t(const void*, void*, std::size_t, ncclDataType_t, ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(ncclGroupStart), ncclResult_t()>);
static_assert(std::is_same_v<decltype(ncclGroupEnd), ncclResult_t()>);
#endif

struct Library {
    void* file = nullptr;
    GetVersion* version = nullptr;
    ErrorString* error_string = nullptr;
    InitAll* init_all = nullptr;
    OfOne* destroy = nullptr;
    OfOne* abort = nullptr;
    AsyncError* async_error = nullptr;
    AllReduce* all_reduce = nullptr;
    AllGather* all_gather = nullptr;
    Group* group_start = nullptr;
    Group* group_end = nullptr;
    bool is_missing = false;
    std::string why_not;
};

template <typename Function>
bool find(Library& library, Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library.file, name));
    if (function == nullptr) library.why_not = std::string(kFile) + " has no " + name;
    return function != nullptr;
}

// Whether `error` says that the library's file does not exist. The loader reports that in words only; it names first
// what it did not find.
bool says_missing(const char* error) {
    return std::strncmp(error, kFile, sizeof(kFile) - 1) == 0 && std::strstr(error, "No such file") != nullptr;
}

Library load() {
    Library out;
    // The library is never unloaded: it has threads of its own.
    out.file = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (out.file == nullptr) {
        const char* error = ::dlerror();
        out.why_not = error == nullptr ? std::string(kFile) + " does not load" : error;
        out.is_missing = says_missing(out.why_not.c_str());
        return out;
    }
    const bool complete =
        find(out, out.version, "ncclGetVersion") && find(out, out.error_string, "ncclGetErrorString") &&
        find(out, out.init_all, "ncclCommInitAll") && find(out, out.destroy, "ncclCommDestroy") &&
        find(out, out.abort, "ncclCommAbort") && find(out, out.async_error, "ncclCommGetAsyncError") &&
        find(out, out.all_reduce, "ncclAllReduce") && find(out, out.all_gather, "ncclAllGather") &&
        find(out, out.group_start, "ncclGroupStart") && find(out, out.group_end, "ncclGroupEnd");
    if (!complete) out.file = nullptr;
    return out;
}

const Library& library() {
    static const Library loaded = load();  // loaded by the first caller
    return loaded;
}

Status fail(const char* call, int result, ErrorText* error) {
    static_cast<void>(cudaGetLastError());  // clears the error, else the next launch would seem to have failed
    std::snprintf(error->text, sizeof(error->text), "%s: %s", call, library().error_string(result));
    return Status::Failed;
}

Status status_of_call(const char* call, int result, ErrorText* error) {
    return result == kDone ? Status::Ok : fail(call, result, error);
}

// Returns the first rank with an error, perhaps from an earlier call, with the error in *result; -1: none.
std::int32_t failed_rank(std::int32_t n_ranks, const RankPart* parts, int* result) {
    for (std::int32_t rank = 0; rank < n_ranks; ++rank) {
        int state = kDone;
        const int asked = library().async_error(parts[rank].communicator, &state);
        *result = asked != kDone ? asked : state;
        if (*result != kDone && *result != kUnderWay) return rank;
    }
    return -1;
}

// Calls `one(part)` for all ranks in one group. Sets *failed to the rank that failed; -1: not known.
template <typename One>
Status grouped(const char* name, std::int32_t n_ranks, const RankPart* parts, std::int32_t* failed, ErrorText* error,
               const One& one) {
    int result = kDone;
    *failed = failed_rank(n_ranks, parts, &result);
    if (*failed >= 0) return fail("ncclCommGetAsyncError", result, error);
    const std::scoped_lock lock(memory_mutex());
    if (const int begun = library().group_start(); begun != kDone) return fail("ncclGroupStart", begun, error);
    for (std::int32_t rank = 0; rank < n_ranks && *failed < 0; ++rank) {
        result = one(parts[rank]);
        if (result != kDone) *failed = rank;
    }
    const int ended = library().group_end();  // needed also to end a group that failed
    if (*failed >= 0) return fail(name, result, error);
    if (ended == kDone) return Status::Ok;
    *failed = failed_rank(n_ranks, parts, &result);
    return fail(name, ended, error);
}

}  // namespace

Status nccl_version(std::int64_t* version, ErrorText* error) {
    *version = 0;
    if (library().file == nullptr) {
        std::snprintf(error->text, sizeof(error->text), "%s", library().why_not.c_str());
        return library().is_missing ? Status::NotInstalled : Status::Failed;
    }
    int found = 0;
    const Status status = status_of_call("ncclGetVersion", library().version(&found), error);
    *version = found;
    return status;
}

Status make_communicators(std::int32_t n_ranks, const std::int32_t* devices, void** communicators, ErrorText* error) {
    std::int64_t version = 0;
    if (const Status status = nccl_version(&version, error); status != Status::Ok) return status;
    return status_of_call("ncclCommInitAll", library().init_all(communicators, n_ranks, devices), error);
}

Status free_communicator(std::int32_t device, void* communicator, ErrorText* error) {
    if (const Status status = use_device(device, error); status != Status::Ok) return status;
    return status_of_call("ncclCommDestroy", library().destroy(communicator), error);
}

Status abort_communicator(std::int32_t device, void* communicator, ErrorText* error) {
    // Aborts even if the device cannot be used: kernels that wait on a failed GPU must end too.
    static_cast<void>(use_device(device, error));
    return status_of_call("ncclCommAbort", library().abort(communicator), error);
}

Status sum_parts(std::int32_t n_ranks, const RankPart* parts, std::size_t n_floats, std::int32_t* failed,
                 ErrorText* error) {
    return grouped("ncclAllReduce", n_ranks, parts, failed, error, [n_floats](const RankPart& part) {
        return library().all_reduce(part.from, part.to, n_floats, kFloat32, kSum, part.communicator,
                                    static_cast<cudaStream_t>(part.place.stream));
    });
}

Status gather_parts(std::int32_t n_ranks, const RankPart* parts, std::size_t n_floats, std::int32_t* failed,
                    ErrorText* error) {
    return grouped("ncclAllGather", n_ranks, parts, failed, error, [n_floats](const RankPart& part) {
        return library().all_gather(part.from, part.to, n_floats, kFloat32, part.communicator,
                                    static_cast<cudaStream_t>(part.place.stream));
    });
}

}  // namespace slipstream::cuda::card
