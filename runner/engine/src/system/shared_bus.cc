#include "shared_bus.h"

#include <utility>

#include "endpoint.h"

namespace chakrascope::engine {
namespace {

constexpr int kLongestStreak = 8;
constexpr double kInnerGap = 0.0038;  // ns per byte on the inner bus

// Return a size on the bus as in ASTRA-sim, which stores the size in a signed 32-bit integer. ASTRA-sim
// stalls if this integer is negative; in that case, the size is returned unchanged.
std::int64_t size_on_bus(std::uint64_t size) {
    const auto left = static_cast<std::int32_t>(static_cast<std::uint32_t>(size));
    return left < 0 ? static_cast<std::int64_t>(size) : left;
}

BusPort::Parameters parameters_of(const Config& config) {
    return {static_cast<std::int64_t>(static_cast<float>(config.L)),
            static_cast<std::int64_t>(static_cast<float>(config.o)),
            static_cast<std::int64_t>(static_cast<float>(config.g)),
            static_cast<double>(static_cast<float>(config.G)), config.local_reduction_delay};
}

BusPort::Parameters inner_parameters_of(const Config& config) {
    BusPort::Parameters parameters = parameters_of(config);
    parameters.G = kInnerGap;
    return parameters;
}

}  // namespace

BusPort::BusPort(const Parameters& parameters, EventQueue& events, std::int32_t rank)
    : parameters_(parameters), events_(events), rank_(rank) {}

void BusPort::attach(BusPort& near, BusPort& far) {
    inner_near_ = &near;
    inner_far_ = &far;
}

void BusPort::request(Item item) {
    if (inner_far_ == nullptr) {
        out_.push_back(std::move(item));
        if (current_ == State::Free && !arbitrate()) begin();
        return;
    }
    const std::int64_t size = item.size;
    inner_far_->request(
        {size, false, false, [this, item = std::move(item)]() mutable { push_out(std::move(item)); }});
}

void BusPort::push_out(Item item) {
    out_.push_back(std::move(item));
    kick();
}

void BusPort::kick() {
    if (current_ == State::Free && !out_.empty() && !arbitrate()) begin();
}

// Yield the bus to the partner port if it has waited while this port sent many consecutive items.
bool BusPort::arbitrate() {
    if (streak_ <= kLongestStreak || partner_->out_.empty() || partner_->streak_ > kLongestStreak)
        return false;
    if (partner_->current_ == State::Free) partner_->kick();
    return true;
}

void BusPort::begin() {
    const auto elapsed = static_cast<std::int64_t>(events_.now() - last_);
    std::int64_t offset = parameters_.o;
    if (previous_ == State::Sending && parameters_.o + elapsed <= parameters_.g)
        offset = parameters_.g - elapsed;
    Item item = std::move(out_.front());
    out_.pop_front();
    const auto size = static_cast<double>(item.size - 1);
    partner_->accept(std::move(item), static_cast<double>(offset));
    current_ = State::Sending;
    events_.after(rank_, truncate(static_cast<double>(offset) + parameters_.G * size),
                  bind<&BusPort::send_done>(this));
}

void BusPort::accept(Item item, double offset) {
    const auto size = static_cast<double>(item.size - 1);
    in_.push_back(std::move(item));
    previous_ = current_;
    current_ = State::Receiving;
    const double arrival = offset + size * parameters_.G + static_cast<double>(parameters_.L) +
                           static_cast<double>(parameters_.o);
    events_.after(rank_, truncate(arrival), bind<&BusPort::receive_done>(this));
    streak_ = 0;
}

void BusPort::send_done(std::uint64_t) {
    last_ = events_.now();
    previous_ = current_;
    current_ = State::Free;
    ++streak_;
    kick();
}

void BusPort::receive_done(std::uint64_t) {
    last_ = events_.now();
    previous_ = current_;
    if (in_.size() < 2) current_ = State::Free;
    Item& head = in_.front();
    if (head.processed) {
        head.processed = false;
        Item item = std::move(head);
        in_.pop_front();
        to_processing(std::move(item));
    } else if (head.send_back) {
        head.send_back = false;
        Item item = std::move(head);
        in_.pop_front();
        to_output(std::move(item));
    } else {
        to_owner(in_);
    }
    kick();
}

void BusPort::to_processing(Item item) {
    if (inner_near_ == nullptr) {
        waiting_.push_back(std::move(item));
        start_processing();
        return;
    }
    const std::int64_t size = item.size;
    inner_near_->request({size, false, true, [this, item = std::move(item)]() mutable {
                              waiting_.push_back(std::move(item));
                              start_processing();
                              kick();
                          }});
}

void BusPort::to_output(Item item) {
    if (inner_near_ == nullptr) {
        out_.push_back(std::move(item));
        return;
    }
    const std::int64_t size = item.size;
    inner_near_->request(
        {size, false, true, [this, item = std::move(item)]() mutable { push_out(std::move(item)); }});
}

// Pass the first item of a queue to the owner of the port. Without an inner bus, the item leaves its
// queue only after the owner has been notified.
void BusPort::to_owner(std::deque<Item>& from) {
    if (inner_near_ == nullptr) {
        const auto done = from.front().done;
        done();
        from.pop_front();
        return;
    }
    Item item = std::move(from.front());
    from.pop_front();
    const std::int64_t size = item.size;
    inner_near_->request({size, false, false, [this, item = std::move(item)] {
                              item.done();
                              kick();
                          }});
}

void BusPort::start_processing() {
    if (processing_ || waiting_.empty()) return;
    processing_ = true;
    const std::int64_t delay = (waiting_.front().size / 100) * parameters_.reduction_delay + 50;
    events_.after(rank_, static_cast<Time>(delay), bind<&BusPort::processing_done>(this));
}

void BusPort::processing_done(std::uint64_t) {
    processing_ = false;
    if (waiting_.front().send_back) {
        Item item = std::move(waiting_.front());
        waiting_.pop_front();
        item.send_back = false;
        to_output(std::move(item));
    } else {
        to_owner(waiting_);
    }
    start_processing();
    kick();
}

SharedBus::SharedBus(const Config& config, EventQueue& events, std::int32_t rank)
    : npu_(parameters_of(config), events, rank),
      memory_(parameters_of(config), events, rank),
      inner_npu_(inner_parameters_of(config), events, rank),
      inner_memory_(inner_parameters_of(config), events, rank) {
    npu_.partner_with(memory_);
    memory_.partner_with(npu_);
    inner_npu_.partner_with(inner_memory_);
    inner_memory_.partner_with(inner_npu_);
    npu_.attach(inner_npu_, inner_memory_);
}

void SharedBus::request(const Bundle& bundle, Callback done) {
    BusPort& port = bundle.side == Side::ToMemory ? npu_ : memory_;
    port.request({size_on_bus(bundle.size), bundle.processed, bundle.send_back, [done] { done(); }});
}

}  // namespace chakrascope::engine
