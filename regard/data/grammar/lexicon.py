"""The words of the grammar: one row per word, with all its forms in every language, so that a new word is a new row.

Kinds say what goes with what: an adjective, a verb's object or a preposition takes nouns that share a kind with it.
"""

from __future__ import annotations

from dataclasses import dataclass

# ------------------------------------------------------------------------------------------------------ parts of speech


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun, singular and plural; an aspirated h keeps the article whole: le hibou, but l'homme."""

    english: str
    english_plural: str
    gender: str  # m or f
    french: str
    french_plural: str
    chinese: str
    measure: str  # the word that Chinese counts it with
    kinds: str
    aspirated: bool = False
    owned: bool = True  # my friend, but not my man: in French that is a husband


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective; French has a fifth form where the masculine changes before a vowel."""

    english: str
    french: str  # petit petite petits petites
    before: bool  # in French it stands before the noun
    chinese: str  # with 的 where it needs one before a noun
    kinds: str
    living: str = ""  # Chinese for people and animals, where it differs
    colour: bool = False
    predicate: bool = True  # it can be said with "is"


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb in the present. A state lasts, an event is over at once, an action is neither."""

    english: str
    english_third: str
    french: str
    french_plural: str
    chinese: str
    negation: str  # Chinese 不 or 没
    sort: str  # action, state or event
    subjects: str  # kinds
    objects: str = ""  # kinds; none: intransitive
    generic: bool = False  # likes dogs: aime les chiens, all of them
    indefinite: bool = False  # has a dog, never the dog
    particle: str = ""  # looks for


@dataclass(frozen=True, eq=False)
class Preposition:
    """Where something is. French may end in de, which contracts; Chinese puts its word after the noun."""

    english: str
    french: str
    chinese: str
    kinds: str
    of_places: bool = False  # a house can be near a lake, but not in a box


@dataclass(frozen=True, eq=False)
class Determiner:
    """An article, a demonstrative or a possessive; Chinese has its word only where it counts or points."""

    english: str
    english_plural: str
    french: str  # masculine, feminine, plural; before a vowel masculine, feminine
    chinese: str
    definite: bool = True
    owner: bool = False


@dataclass(frozen=True, eq=False)
class Numeral:
    """A number of things."""

    english: str
    french: str
    chinese: str


@dataclass(frozen=True, eq=False)
class Pronoun:
    """A word for a person."""

    english: str
    french: str
    chinese: str
    gender: str = "m"


@dataclass(frozen=True, eq=False)
class Adverb:
    """How often; the negative one takes the place of "not"."""

    english: str
    french: str
    chinese: str
    negative: bool = False


@dataclass(frozen=True, eq=False)
class Time:
    """When: at the beginning in English and French, after the subject in Chinese."""

    english: str
    french: str
    chinese: str


@dataclass(frozen=True, eq=False)
class Link:
    """What joins two clauses; in Chinese 1 and 2 stand for them, and may change places."""

    english: str
    french: str
    chinese: str
    open: bool = False  # what it joins may happen or not, once or often


# --------------------------------------------------------------------------------------------------------------- words

PLEASING = "animal thing building room nature"
LIVING = "person animal"
GOODS = "animal food text thing"
MOVABLE = "person animal food text thing"
ANY = "person animal food text thing place room nature"

NOUNS = (
    Noun("boy", "boys", "m", "garçon", "garçons", "男孩", "个", "person", owned=False),
    Noun("girl", "girls", "f", "fille", "filles", "女孩", "个", "person", owned=False),
    Noun("man", "men", "m", "homme", "hommes", "男人", "个", "person adult", owned=False),
    Noun("woman", "women", "f", "femme", "femmes", "女人", "个", "person adult", owned=False),
    Noun("child", "children", "m", "enfant", "enfants", "孩子", "个", "person"),
    Noun("teacher", "teachers", "m", "professeur", "professeurs", "教师", "个", "person adult"),
    Noun("doctor", "doctors", "m", "médecin", "médecins", "医生", "个", "person adult"),
    Noun("student", "students", "m", "étudiant", "étudiants", "学生", "个", "person adult"),
    Noun("friend", "friends", "m", "ami", "amis", "朋友", "个", "person adult"),
    Noun("nurse", "nurses", "f", "infirmière", "infirmières", "护士", "个", "person adult"),
    Noun("king", "kings", "m", "roi", "rois", "国王", "个", "person adult"),
    Noun("queen", "queens", "f", "reine", "reines", "女王", "个", "person adult"),
    Noun("cat", "cats", "m", "chat", "chats", "猫", "只", "animal"),
    Noun("dog", "dogs", "m", "chien", "chiens", "狗", "只", "animal"),
    Noun("bird", "birds", "m", "oiseau", "oiseaux", "鸟", "只", "animal"),
    Noun("horse", "horses", "m", "cheval", "chevaux", "马", "匹", "animal"),
    Noun("cow", "cows", "f", "vache", "vaches", "奶牛", "头", "animal"),
    Noun("duck", "ducks", "m", "canard", "canards", "鸭子", "只", "animal"),
    Noun("rabbit", "rabbits", "m", "lapin", "lapins", "兔子", "只", "animal"),
    Noun("lion", "lions", "m", "lion", "lions", "狮子", "头", "animal"),
    Noun("bear", "bears", "m", "ours", "ours", "熊", "只", "animal"),
    Noun("owl", "owls", "m", "hibou", "hiboux", "猫头鹰", "只", "animal", aspirated=True),
    Noun("goat", "goats", "f", "chèvre", "chèvres", "山羊", "只", "animal"),
    Noun("swallow", "swallows", "f", "hirondelle", "hirondelles", "燕子", "只", "animal"),
    Noun("apple", "apples", "f", "pomme", "pommes", "苹果", "个", "food"),
    Noun("orange", "oranges", "f", "orange", "oranges", "橙子", "个", "food"),
    Noun("pear", "pears", "f", "poire", "poires", "梨", "个", "food"),
    Noun("cake", "cakes", "m", "gâteau", "gâteaux", "蛋糕", "个", "food"),
    Noun("egg", "eggs", "m", "œuf", "œufs", "鸡蛋", "个", "food"),
    Noun("banana", "bananas", "f", "banane", "bananes", "香蕉", "根", "food"),
    Noun("book", "books", "m", "livre", "livres", "书", "本", "text written"),
    Noun("letter", "letters", "f", "lettre", "lettres", "信", "封", "text written opened"),
    Noun("newspaper", "newspapers", "m", "journal", "journaux", "报纸", "份", "text"),
    Noun("car", "cars", "f", "voiture", "voitures", "汽车", "辆", "thing vehicle holder landmark"),
    Noun("bicycle", "bicycles", "m", "vélo", "vélos", "自行车", "辆", "thing vehicle"),
    Noun("table", "tables", "f", "table", "tables", "桌子", "张", "thing surface cover landmark"),
    Noun("chair", "chairs", "f", "chaise", "chaises", "椅子", "把", "thing surface cover landmark"),
    Noun("mat", "mats", "m", "tapis", "tapis", "垫子", "块", "thing surface washed"),
    Noun("bed", "beds", "m", "lit", "lits", "床", "张", "thing surface cover landmark"),
    Noun("box", "boxes", "f", "boîte", "boîtes", "盒子", "个", "thing holder opened"),
    Noun("bag", "bags", "m", "sac", "sacs", "包", "个", "thing holder opened washed"),
    Noun("hat", "hats", "m", "chapeau", "chapeaux", "帽子", "顶", "thing washed"),
    Noun("shirt", "shirts", "f", "chemise", "chemises", "衬衫", "件", "thing washed"),
    Noun("door", "doors", "f", "porte", "portes", "门", "扇", "thing opened landmark"),
    Noun("window", "windows", "f", "fenêtre", "fenêtres", "窗户", "扇", "thing opened landmark"),
    Noun("umbrella", "umbrellas", "m", "parapluie", "parapluies", "雨伞", "把", "thing cover"),
    Noun("clock", "clocks", "f", "horloge", "horloges", "时钟", "个", "thing"),
    Noun("key", "keys", "f", "clé", "clés", "钥匙", "把", "thing"),
    Noun("lamp", "lamps", "f", "lampe", "lampes", "灯", "盏", "thing landmark"),
    Noun("house", "houses", "f", "maison", "maisons", "房子", "栋", "place building inside landmark"),
    Noun("school", "schools", "f", "école", "écoles", "学校", "所", "place building inside landmark sight"),
    Noun("station", "stations", "f", "gare", "gares", "车站", "个", "place building inside landmark"),
    Noun("museum", "museums", "m", "musée", "musées", "博物馆", "座", "place building inside landmark sight"),
    Noun("hospital", "hospitals", "m", "hôpital", "hôpitaux", "医院", "家", "place building inside landmark sight"),
    Noun("hotel", "hotels", "m", "hôtel", "hôtels", "酒店", "家", "place building inside landmark"),
    Noun("church", "churches", "f", "église", "églises", "教堂", "座", "place building inside landmark sight"),
    Noun("kitchen", "kitchens", "f", "cuisine", "cuisines", "厨房", "间", "room inside landmark"),
    Noun("garden", "gardens", "m", "jardin", "jardins", "花园", "个", "place nature inside landmark sight"),
    Noun("park", "parks", "m", "parc", "parcs", "公园", "个", "place nature inside landmark"),
    Noun("forest", "forests", "f", "forêt", "forêts", "森林", "片", "place nature inside landmark"),
    Noun("lake", "lakes", "m", "lac", "lacs", "湖", "个", "place nature landmark"),
    Noun("river", "rivers", "f", "rivière", "rivières", "河", "条", "place nature landmark"),
    Noun("island", "islands", "f", "île", "îles", "岛", "座", "nature surface landmark"),
    Noun("bridge", "bridges", "m", "pont", "ponts", "桥", "座", "place building surface cover landmark"),
    Noun("tree", "trees", "m", "arbre", "arbres", "树", "棵", "nature cover landmark"),
)

ADJECTIVES = (
    Adjective("small", "petit petite petits petites", True, "小", "animal thing food text place room nature"),
    Adjective("big", "grand grande grands grandes", True, "大", "animal thing food place room nature"),
    Adjective("old", "vieux vieille vieux vieilles vieil", True, "旧", "adult animal thing text building", living="老"),
    Adjective("young", "jeune jeune jeunes jeunes", True, "年轻", "person"),
    Adjective("beautiful", "beau belle beaux belles bel", True, "漂亮 的", PLEASING),
    Adjective("pretty", "joli jolie jolis jolies", True, "好看 的", PLEASING),
    Adjective("good", "bon bonne bons bonnes", True, "好", "person animal food text"),
    Adjective(
        "new", "nouveau nouvelle nouveaux nouvelles nouvel", True, "新", "thing text building room", predicate=False
    ),
    Adjective("red", "rouge rouge rouges rouges", False, "红色 的", "thing", colour=True),
    Adjective("green", "vert verte verts vertes", False, "绿色 的", "thing", colour=True),
    Adjective("blue", "bleu bleue bleus bleues", False, "蓝色 的", "thing", colour=True),
    Adjective("yellow", "jaune jaune jaunes jaunes", False, "黄色 的", "thing", colour=True),
    Adjective("black", "noir noire noirs noires", False, "黑色 的", "thing animal", colour=True),
    Adjective("white", "blanc blanche blancs blanches", False, "白色 的", "thing animal building", colour=True),
    Adjective("intelligent", "intelligent intelligente intelligents intelligentes", False, "聪明 的", "person animal"),
    Adjective("happy", "heureux heureuse heureux heureuses", False, "快乐 的", "person animal"),
    Adjective("sad", "triste triste tristes tristes", False, "悲伤 的", "person"),
    Adjective("tired", "fatigué fatiguée fatigués fatiguées", False, "疲倦 的", "person animal"),
    Adjective("rich", "riche riche riches riches", False, "富有 的", "person"),
    Adjective("strong", "fort forte forts fortes", False, "强壮 的", "person animal"),
    Adjective("famous", "célèbre célèbre célèbres célèbres", False, "有名 的", "person building text"),
    Adjective("polite", "poli polie polis polies", False, "有礼貌 的", "person"),
    Adjective("dangerous", "dangereux dangereuse dangereux dangereuses", False, "危险 的", "animal vehicle nature"),
    Adjective("quiet", "calme calme calmes calmes", False, "安静 的", "person animal place room"),
    Adjective("heavy", "lourd lourde lourds lourdes", False, "沉重 的", "thing"),
    Adjective("expensive", "cher chère chers chères", False, "昂贵 的", "thing food"),
    Adjective("interesting", "intéressant intéressante intéressants intéressantes", False, "有趣 的", "text"),
    Adjective("delicious", "délicieux délicieuse délicieux délicieuses", False, "好吃 的", "food"),
)

VERBS = (
    Verb("see", "sees", "voit", "voient", "看见", "没", "event", LIVING, ANY),
    Verb("hear", "hears", "entend", "entendent", "听见", "没", "event", LIVING, LIVING),
    Verb("find", "finds", "trouve", "trouvent", "找到", "没", "event", LIVING, MOVABLE),
    Verb("look", "looks", "cherche", "cherchent", "找", "不", "action", LIVING, MOVABLE, particle="for"),
    Verb("wait", "waits", "attend", "attendent", "等", "不", "action", LIVING, "person", particle="for"),
    Verb("watch", "watches", "regarde", "regardent", "看", "不", "action", LIVING, LIVING),
    Verb("chase", "chases", "poursuit", "poursuivent", "追赶", "不", "action", LIVING, LIVING),
    Verb("protect", "protects", "protège", "protègent", "保护", "不", "action", LIVING, "person animal nature"),
    Verb("help", "helps", "aide", "aident", "帮助", "不", "action", LIVING, LIVING),
    Verb("thank", "thanks", "remercie", "remercient", "感谢", "不", "action", "person", "person"),
    Verb("push", "pushes", "pousse", "poussent", "推", "不", "action", LIVING, "person animal thing"),
    Verb("wash", "washes", "lave", "lavent", "洗", "不", "action", "person", "animal vehicle washed"),
    Verb("eat", "eats", "mange", "mangent", "吃", "不", "action", LIVING, "food"),
    Verb("buy", "buys", "achète", "achètent", "买", "不", "action", "person", GOODS),
    Verb("sell", "sells", "vend", "vendent", "卖", "不", "action", "person", GOODS),
    Verb("read", "reads", "lit", "lisent", "读", "不", "action", "person", "text"),
    Verb("write", "writes", "écrit", "écrivent", "写", "不", "action", "person", "written"),
    Verb("draw", "draws", "dessine", "dessinent", "画", "不", "action", "person", "animal thing food place nature"),
    Verb("open", "opens", "ouvre", "ouvrent", "打开", "不", "action", "person", "opened"),
    Verb("visit", "visits", "visite", "visitent", "参观", "不", "action", "person", "sight"),
    Verb("like", "likes", "aime", "aiment", "喜欢", "不", "state", LIVING, MOVABLE, generic=True),
    Verb("love", "loves", "adore", "adorent", "爱", "不", "state", "person", LIVING, generic=True),
    Verb("hate", "hates", "déteste", "détestent", "讨厌", "不", "state", LIVING, MOVABLE, generic=True),
    Verb("fear", "fears", "craint", "craignent", "害怕", "不", "state", LIVING, LIVING, generic=True),
    Verb("know", "knows", "connaît", "connaissent", "认识", "不", "state", "person", "person"),
    Verb("want", "wants", "veut", "veulent", "想要", "不", "state", "person", GOODS),
    Verb("have", "has", "a", "ont", "有", "没", "state", "person", GOODS, indefinite=True),
    Verb("sleep", "sleeps", "dort", "dorment", "睡觉", "不", "action", LIVING),
    Verb("run", "runs", "court", "courent", "奔跑", "不", "action", LIVING),
    Verb("walk", "walks", "marche", "marchent", "走路", "不", "action", LIVING),
    Verb("play", "plays", "joue", "jouent", "玩耍", "不", "action", LIVING),
    Verb("swim", "swims", "nage", "nagent", "游泳", "不", "action", LIVING),
    Verb("sing", "sings", "chante", "chantent", "唱歌", "不", "action", "person"),
    Verb("dance", "dances", "danse", "dansent", "跳舞", "不", "action", "person"),
    Verb("work", "works", "travaille", "travaillent", "工作", "不", "action", "person"),
    Verb("laugh", "laughs", "rit", "rient", "笑", "不", "action", "person"),
    Verb("cry", "cries", "pleure", "pleurent", "哭", "不", "action", "person"),
)

PREPOSITIONS = (
    Preposition("on", "sur", "上", "surface"),
    Preposition("under", "sous", "下面", "cover"),
    Preposition("in", "dans", "里", "inside holder"),
    Preposition("inside", "à l' intérieur de", "里面", "inside holder"),
    Preposition("near", "près de", "附近", "landmark", of_places=True),
    Preposition("next to", "à côté de", "旁边", "landmark", of_places=True),
    Preposition("behind", "derrière", "后面", "landmark", of_places=True),
    Preposition("in front of", "devant", "前面", "landmark", of_places=True),
    Preposition("opposite", "en face de", "对面", "building", of_places=True),
)

DETERMINERS = (
    Determiner("the", "the", "le la les le la", "那"),
    Determiner("a", "", "un une des un une", "一", definite=False),
    Determiner("this", "these", "ce cette ces cet cette", "这"),
    Determiner("my", "my", "mon ma mes mon mon", "我 的", owner=True),
    Determiner("your", "your", "ton ta tes ton ton", "你 的", owner=True),
    Determiner("his", "his", "son sa ses son son", "他 的", owner=True),
    Determiner("our", "our", "notre notre nos notre notre", "我们 的", owner=True),
)

NUMERALS = (
    Numeral("two", "deux", "两"),
    Numeral("three", "trois", "三"),
    Numeral("four", "quatre", "四"),
    Numeral("five", "cinq", "五"),
)

SUBJECTS = (Pronoun("he", "il", "他"), Pronoun("she", "elle", "她", gender="f"))

OBJECTS = (
    Pronoun("him", "le", "他"),
    Pronoun("her", "la", "她", gender="f"),
    Pronoun("them", "les", "他们"),
    Pronoun("me", "me", "我"),
    Pronoun("you", "te", "你"),
    Pronoun("us", "nous", "我们"),
)

ADVERBS = (
    Adverb("often", "souvent", "常常"),
    Adverb("always", "toujours", "总是"),
    Adverb("sometimes", "parfois", "有时"),
    Adverb("also", "aussi", "也"),
    Adverb("never", "jamais", "从不", negative=True),
)

TIMES = (
    Time("every day", "chaque jour", "每天"),
    Time("in the morning", "le matin", "早上"),
    Time("at night", "la nuit", "夜里"),
    Time("in summer", "en été", "夏天"),
)

LINKS = (
    Link("and", "et", "1 ， 2"),
    Link("but", "mais", "1 ， 但是 2"),
    Link("because", "parce que", "1 ， 因为 2"),
    Link("when", "quand", "2 的 时候 ， 1", open=True),
    Link("if", "si", "如果 2 ， 1", open=True),
)
