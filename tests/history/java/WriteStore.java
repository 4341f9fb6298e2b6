import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.RocksDBMessageStore;
import org.apache.rocketmq.store.StoreType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Writes a small store with RocketMQ's own code: 40 messages of topics "plain" and "special" with the keys k0 to k39.
 *
 * Arguments: folder, and the kind of the store: batch-queues (the queues of "special" are batch queues), rocksdb-queues,
 * light-queues (messages of "special" are in two light queues, too), no-index, or no-mmap. Further arguments: "check" only
 * loads the store and prints how many messages it has; "crash" ends without a shutdown.
 */
public class WriteStore {
    private static final int SEGMENT_BYTES = 16384;
    private static final int QUEUE_FILE_BYTES = 20 * 20;
    private static final int MESSAGES = 40;

    private static MessageStoreConfig configuration(String folder, String kind) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(folder);
        config.setStorePathCommitLog(folder + File.separator + "commitlog");
        config.setMappedFileSizeCommitLog(SEGMENT_BYTES);
        config.setMappedFileSizeConsumeQueue(QUEUE_FILE_BYTES);
        config.setMapperFileSizeBatchConsumeQueue(20 * 46);
        config.setMaxHashSlotNum(64);
        config.setMaxIndexNum(256);
        config.setHaListenPort(0);
        config.setDiskMaxUsedSpaceRatio(99);
        config.setTimerWheelEnable(false);
        switch (kind) {
            case "batch-queues":
                break;
            case "rocksdb-queues":
                config.setStoreType(StoreType.DEFAULT_ROCKSDB.getStoreType());
                break;
            case "light-queues":
                config.setEnableLmq(true);
                config.setEnableMultiDispatch(true);
                break;
            case "no-index":
                config.setMessageIndexEnable(false);
                break;
            case "no-mmap":
                config.setWriteWithoutMmap(true);
                break;
            default:
                throw new IllegalArgumentException(kind);
        }
        return config;
    }

    private static DefaultMessageStore open(String folder, String kind) throws Exception {
        MessageStoreConfig config = configuration(folder, kind);
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        if (kind.equals("batch-queues")) {
            TopicConfig special = new TopicConfig("special", 2, 2);
            special.setAttributes(Map.of("queue.type", "BatchCQ"));
            topics.put("special", special);
        }
        BrokerConfig broker = new BrokerConfig();
        BrokerStatsManager statistics = new BrokerStatsManager("test", false);
        DefaultMessageStore store = kind.equals("rocksdb-queues")
            ? new RocksDBMessageStore(config, statistics, null, broker, topics)
            : new DefaultMessageStore(config, statistics, null, broker, topics);
        if (!store.load()) {
            throw new IOException("cannot load the store");
        }
        store.start();
        return store;
    }

    private static MessageExtBrokerInner message(int number, String kind) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        boolean isSpecial = number % 2 == 1;
        message.setTopic(isSpecial ? "special" : "plain");
        // Lengths differ, so that a reused buffer has the end of a longer message.
        message.setBody(("body " + number + " " + "x".repeat(number * 37 % 200)).getBytes(StandardCharsets.UTF_8));
        message.setKeys("k" + number);
        message.setQueueId(number / 2 % 2);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
        if (isSpecial && kind.equals("light-queues")) {
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_INNER_MULTI_DISPATCH, "%LMQ%a,%LMQ%b");
        }
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    public static void main(String[] args) {
        try {
            run(args[0], args[1], args.length > 2 ? args[2] : "write");
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1); // a partly loaded store keeps its threads
        }
        System.exit(0);
    }

    private static void run(String folder, String kind, String mode) throws Exception {
        DefaultMessageStore store = open(folder, kind);
        if (mode.equals("check")) {
            long found = 0;
            for (String topic : new String[] {"plain", "special"}) {
                for (int queue = 0; queue < 2; queue++) {
                    found += store.getMaxOffsetInQueue(topic, queue) - store.getMinOffsetInQueue(topic, queue);
                }
            }
            System.out.println("messages\t" + found);
        } else {
            for (int number = 0; number < MESSAGES; number++) {
                PutMessageStatus status = store.putMessage(message(number, kind)).getPutMessageStatus();
                if (status != PutMessageStatus.PUT_OK) {
                    throw new IOException("message " + number + ": " + status);
                }
            }
            Thread.sleep(1500);
        }
        if (mode.equals("crash")) {
            Runtime.getRuntime().halt(0);
        }
        store.shutdown();
    }
}
