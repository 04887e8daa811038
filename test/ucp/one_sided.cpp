// SPDX-License-Identifier: BSD-3-Clause
// Put, get and atomic operations.
#include "check.hpp"
#include "remote_memory.hpp"
#include "session.hpp"
#include "transfers.hpp"

namespace gpushm::ucp_test {
namespace {

constexpr size_t kLargeGet = 32768;  // no UCX gets it by an answer in one message

void flush(Session &session) {
    const ucp_request_param_t parameters = plain_request();
    require(session.worker().wait(ucp_ep_flush_nbx(session.ep(), &parameters)), "flush");
}

/** The operation is started by the sender of a put and by the receiver of a get. */
void transfer_one_sided(Peer &peer, Session &session, const Transfer &transfer, bool put) {
    const Progress progress = session.worker().progress_function();
    const ucp_request_param_t parameters = plain_request();
    const size_t size = transfer.message.size;
    if (transfer.sending == put) {
        const std::unique_ptr<RemoteMemory> remote = accept(peer, session, progress);
        ucs_status_ptr_t request = put ? ucp_put_nbx(session.ep(), transfer.address, size,
                                                     remote->address, remote->key, &parameters)
                                       : ucp_get_nbx(session.ep(), transfer.address, size,
                                                     remote->address, remote->key, &parameters);
        if (!put && size >= kLargeGet &&
            (request == nullptr || ucp_request_check_status(request) != UCS_INPROGRESS)) {
            fail("a get of %zu bytes ended within the call that posted it", size);
        }
        require(session.worker().wait(request), put ? "put" : "get");
        flush(session);
        peer.channel.barrier(progress);
        return;
    }
    const ExposedMemory exposed(session, transfer.address, size);
    offer(peer, transfer.address, exposed.key());
    peer.channel.barrier(progress);
}

template <typename Word>
class AtomicTarget {
public:
    AtomicTarget(Peer &peer, Session &session, const RemoteMemory &remote)
        : peer_(peer), session_(session), remote_(remote) {}

    void post(ucp_atomic_op_t operation, Word operand) {
        ucp_request_param_t parameters = typed();
        require(
            session_.worker().wait(ucp_atomic_op_nbx(session_.ep(), operation, &operand, 1,
                                                     remote_.address, remote_.key, &parameters)),
            "atomic operation");
    }

    /** Returns what was there. `swapped` is what a compare-and-swap puts there. */
    Word fetch(ucp_atomic_op_t operation, Word operand, Word swapped = 0) {
        Word reply = swapped;
        ucp_request_param_t parameters = typed();
        parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        parameters.reply_buffer = &reply;
        require(
            session_.worker().wait(ucp_atomic_op_nbx(session_.ep(), operation, &operand, 1,
                                                     remote_.address, remote_.key, &parameters)),
            "atomic operation");
        return reply;
    }

    void expect(Word got, Word wanted, const char *what) {
        if (got != wanted) {
            fail("%s of %zu bytes: expected %llu, got %llu", what, sizeof(Word),
                 static_cast<unsigned long long>(wanted), static_cast<unsigned long long>(got));
        }
    }

private:
    static ucp_request_param_t typed() {
        ucp_request_param_t parameters = plain_request();
        parameters.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
        parameters.datatype = ucp_dt_make_contig(sizeof(Word));
        return parameters;
    }

    Peer &peer_;
    Session &session_;
    const RemoteMemory &remote_;
};

template <typename Word>
void use_atomics(Peer &peer, Session &session, const RemoteMemory &remote, size_t count) {
    AtomicTarget<Word> target(peer, session, remote);
    for (size_t i = 0; i < count; ++i) {
        target.post(UCP_ATOMIC_OP_ADD, 3);
    }
    flush(session);
    const Word sum = static_cast<Word>(3 * count);
    target.expect(target.fetch(UCP_ATOMIC_OP_ADD, 5), sum, "fetch-and-add");
    target.expect(target.fetch(UCP_ATOMIC_OP_SWAP, 77), sum + 5, "swap");
    target.expect(target.fetch(UCP_ATOMIC_OP_CSWAP, 1, 2), 77, "compare-and-swap that does not");
    target.expect(target.fetch(UCP_ATOMIC_OP_CSWAP, 77, 4), 77, "compare-and-swap");
    target.expect(target.fetch(UCP_ATOMIC_OP_ADD, 0), 4, "value in the end");
}

}  // namespace

void put_and_get(Peer &peer) {
    Session session(peer.channel, UCP_FEATURE_RMA);
    // An odd number of sizes: what is put in one pair of kinds is got in the next.
    for_each_transfer(peer, "1,8,113,8192,32768,40000,65536,600001,4200001",
                      [&](const Transfer &transfer) {
                          transfer_one_sided(peer, session, transfer, transfer.n % 2 == 0);
                      });
    peer.channel.barrier(session.worker().progress_function());
}

void atomics(Peer &peer) {
    Session session(peer.channel, UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64);
    const Progress progress = session.worker().progress_function();
    const size_t count = peer.options.number("count", 1000);
    alignas(8) uint64_t words[2] = {0, 0};
    const ExposedMemory exposed(session, words, sizeof(words));
    offer(peer, &words[0], exposed.key());
    const std::unique_ptr<RemoteMemory> first = accept(peer, session, progress);
    offer(peer, &words[1], exposed.key());
    const std::unique_ptr<RemoteMemory> second = accept(peer, session, progress);
    use_atomics<uint32_t>(peer, session, *first, count);
    use_atomics<uint64_t>(peer, session, *second, count);
    peer.channel.barrier(progress);
}

}  // namespace gpushm::ucp_test
